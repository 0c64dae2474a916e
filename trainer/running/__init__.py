"""How a run is started, watched and ended: the parent's side."""
