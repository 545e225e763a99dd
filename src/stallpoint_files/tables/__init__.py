"""Tables in texts, however they are written, and what their columns hold."""
