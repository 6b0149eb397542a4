package api

// Observation is what came of an action: one of the types of this package
// whose name ends in Observation, and nothing else.
//
//sumtype:decl
type Observation interface {
	// Kind returns the name of the observation on the wire, such as "run".
	Kind() string
	observation()
	encode(w *writer)
}
