"""What a request asks for: its task, its outputs, its life in flight and its errors."""
