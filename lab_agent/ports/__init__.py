"""The doors between the rooms, as Protocols: who stands behind one does not matter to who knocks."""
