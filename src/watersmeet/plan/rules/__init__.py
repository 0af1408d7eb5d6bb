"""One rule per file, each a function from plan to plan; `plan.build.RULES` fixes their order."""
