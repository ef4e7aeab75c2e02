"""What commands share: settings and plugins in force, the parts made of them, and a try-out of those."""
