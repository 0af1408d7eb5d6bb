"""How a plan across sites becomes another: streams are measured, one site chooses, all agree, and explain says why."""
