package api

import _ "embed" // for the document

// OpenAPI is the description of every endpoint, action and observation, an
// OpenAPI 3.1 document in YAML. It is served as /openapi.yaml and must not be
// changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
