"""What exhibits are made with."""
