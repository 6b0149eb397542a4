// Package api is the contract between a controller and a sandbox: actions go
// in, observations come out. It holds their types, their JSON and the OpenAPI
// description, and knows nothing about who carries them out.
package api
