"""What a checkpoint's own class does after its base model, run on the states of a runner."""
