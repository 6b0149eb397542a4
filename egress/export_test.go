package egress

// Usable is usable.
var Usable = usable
