"""What a configuration costs before it is trained, and what is known about its shape."""
