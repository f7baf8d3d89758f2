"""Ray itself: sessions, actors, resources, what is sent to workers; and the same workers without Ray."""
