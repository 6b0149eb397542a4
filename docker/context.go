package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/actiond/actiond/sandbox"
)

// contextHost is the engine address of the Docker context that $DOCKER_CONTEXT
// or the configuration file names, empty for the default one.
func contextHost() (string, error) {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", nil //nolint:nilerr // without a home there is no configuration
		}
		dir = filepath.Join(home, ".docker")
	}
	name := os.Getenv("DOCKER_CONTEXT")
	if name == "" {
		var config struct{ CurrentContext string }
		if err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		name = config.CurrentContext
	}
	if name == "" || name == "default" {
		return "", nil
	}
	// The docker command names the directory of a context by the hash of its name.
	sum := sha256.Sum256([]byte(name))
	var meta struct {
		Endpoints map[string]struct{ Host string }
	}
	err := readJSON(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"), &meta)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &noContextError{name}
	case err != nil:
		return "", fmt.Errorf("reading the Docker context %q: %w", name, err)
	}
	return meta.Endpoints["docker"].Host, nil
}

// noContextError reports a Docker context that does not exist.
type noContextError struct{ name string }

func (e *noContextError) Error() string {
	return fmt.Sprintf("there is no Docker context %q: 'docker context ls' shows those that there are", e.name)
}

func (e *noContextError) Unwrap() error { return sandbox.ErrInvalid }

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
