"""The laboratory of watersmeet: what measures it, repeats the papers' evaluations, and simulates networks.

    bench       measurements, answers checked             watersmeet bench ...
    reproduce   the papers' evaluations, by claim         watersmeet reproduce ...
    machines    hosts, a store and a broker, played here  for tests and benchmarks
    simulate    networks, sites and a ring, in process    wm.local.run(..., network=..., sites=...)
    kernels     joins tuple by tuple, which count         kernel="ripple", kernel="xjoin"
    commands    the two commands

Invariant: it imports watersmeet, and watersmeet does not import it: it finds these pieces by entry points, when it is asked for them.
"""
