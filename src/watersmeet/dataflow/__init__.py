"""The contract of every query: stages of units that exchange messages, the clock that they share, and the loop that plays a batch."""
