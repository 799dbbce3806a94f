"""The status page: what waits, why, since when, and what to do next; behind a sign-in, and no patient is named on it."""
