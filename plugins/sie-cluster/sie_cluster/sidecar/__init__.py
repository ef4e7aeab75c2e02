"""The sidecar: pulls work, hands it to its adapter process, answers, acknowledges. It loads no model library."""
