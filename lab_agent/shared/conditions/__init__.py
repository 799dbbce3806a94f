"""Everything that can be wrong, in one table: how it is noticed, its cause, what it affects, and the mend."""
