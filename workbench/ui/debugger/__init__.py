"""A view of a launch that stands still: `state` reads it as data, `history` records its steps, `widget` shows both."""
