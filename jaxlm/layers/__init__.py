"""The parts of a model. They know no family; everything that moves information along the sequence is a mixer."""
