"""The judge: a pure core, and the witness service around it."""
