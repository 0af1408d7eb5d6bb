"""The engines of registered queries: the shared plan, and RJoin. The registry itself is in `runtime.subscriptions`."""
