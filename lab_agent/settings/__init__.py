"""The settings: `root` reads and checks all of them; each component gets only its own group."""
