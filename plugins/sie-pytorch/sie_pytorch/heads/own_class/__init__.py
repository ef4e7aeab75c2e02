"""The part of a checkpoint's own class after its base model, run on the states of a runner."""
