"""How a rank ends, and how it hears of another one's end: what is told, printed, written down and freed."""
