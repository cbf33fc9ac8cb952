"""Policy: wishes in, plan or typed refusal out. Pure and Qt-free."""
