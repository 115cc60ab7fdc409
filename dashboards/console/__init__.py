"""The console: a page that every witness serves by itself, without a build step and without the network."""
