"""The command line's shell: finds every room's commands by entry point."""
