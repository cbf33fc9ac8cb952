"""The launcher: Qt, never torch. Decides the split, starts the engine, shows what settled."""
