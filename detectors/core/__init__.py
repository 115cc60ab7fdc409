"""The pure core: no clock, socket, thread or chance. Signals and time in, decisions out."""
