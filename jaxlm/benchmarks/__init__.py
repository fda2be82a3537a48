"""How fast it is, beside somebody else's implementation of the same thing, and under which conditions."""
