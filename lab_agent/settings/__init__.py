"""The settings: `root` reads and checks all of them, and each other module holds one group, which is all that a room gets."""
