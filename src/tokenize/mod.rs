//! Floor 1: how many tokens a prompt has, as the served model will count them.
