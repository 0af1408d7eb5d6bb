"""What sites do: windows and their copies, and the two halves of every one-way join."""
