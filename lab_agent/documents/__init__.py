"""Result documents: are they what they say, and a plain one where the laboratory system gave none."""
