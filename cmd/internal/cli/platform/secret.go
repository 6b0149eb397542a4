package platform

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/actiond/actiond/egress"
)

// maxSecretFile bounds a file with a value, whose own limit is the policy's to say, in bytes.
const maxSecretFile = 64 << 10

// ReadSecrets parses the values of --secret, as those of docker's: id=NAME, env=VARIABLE or src=FILE,
// host=NAME, header=, format= and var=. It reads each value once. With whole, a secret without a host
// is refused, as it is where its present hosts do not hold. No error has a value.
func (p *Platform) ReadSecrets(specs []string, whole bool) ([]egress.Secret, error) {
	var all []egress.Secret
	for _, spec := range specs {
		s, from, err := parseSecret(spec)
		if err == nil {
			s.Value, err = p.readSecret(from)
		}
		if err == nil && (whole || len(s.Hosts) > 0) {
			err = s.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("--secret%s: %w", leading(s.Name), err)
		}
		all = append(all, s)
	}
	return all, nil
}

func leading(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" %q", name)
}

// source is where a value is read.
type source struct{ env, file string }

const secretForm = "id=NAME,env=VARIABLE,host=HOST or id=NAME,src=FILE,host=HOST" //nolint:gosec // a form, no credentials

// parseSecret parses all but the value. The error has no part of spec but the names of its members,
// because the value may be in it by mistake.
func parseSecret(spec string) (s egress.Secret, from source, err error) {
	fields, err := csv.NewReader(strings.NewReader(spec)).Read()
	if err != nil || strings.ContainsAny(spec, "\r\n") {
		return s, from, errors.New("it must be " + secretForm)
	}
	given := map[string]bool{}
	for _, field := range fields {
		key, text, ok := strings.Cut(field, "=")
		if given[key] && key != "host" {
			return s, from, fmt.Errorf("%s= is given twice", key)
		}
		switch key {
		case "id":
			s.Name = text
		case "env":
			from.env = text
		case "src":
			from.file = text
		case "host":
			var host egress.Host
			if err := host.UnmarshalText([]byte(text)); err != nil {
				return s, from, err
			}
			s.Hosts = append(s.Hosts, host)
		case "header":
			s.Header = text
		case "format":
			s.Format = text
		case "var":
			s.Var = text
		case "value":
			return s, from, errors.New("a value in a command is seen by others: use env=VARIABLE or src=FILE")
		default:
			return s, from, errors.New("it has a member other than id, env, src, host, header, format and var; it must be " + secretForm)
		}
		if !ok || text == "" {
			return s, from, fmt.Errorf("%s= has no value", key)
		}
		given[key] = true
	}
	switch {
	case s.Name == "":
		return s, from, errors.New("it has no id=NAME")
	case (from.env == "") == (from.file == ""):
		return s, from, errors.New("its value is read from one of env=VARIABLE and src=FILE")
	}
	return s, from, nil
}

// envName matches what is hardly a value of a secret.
var envName = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)

// readSecret reads a value. A line break at the end of a file is no part of it. The error does not have
// the name of the file, nor that of the variable unless it looks like one: with env=$KEY, that is the value.
func (p *Platform) readSecret(from source) (egress.Value, error) {
	if from.env != "" {
		value := p.Getenv(from.env)
		if value == "" {
			name := "that env= names"
			if envName.MatchString(from.env) {
				name = from.env
			}
			return "", fmt.Errorf("the variable %s is not set here: export it, or use src=FILE", name)
		}
		return egress.Value(value), nil
	}
	file, err := p.OpenFile(from.file)
	if err != nil {
		return "", unnamed(err)
	}
	defer func() { _ = file.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(file, maxSecretFile+1))
	if err != nil {
		return "", unnamed(err)
	}
	if len(data) > maxSecretFile {
		return "", fmt.Errorf("the file that src= names is larger than %d bytes", maxSecretFile)
	}
	return egress.Value(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))), nil
}

// unnamed is an error about a file without its name.
func unnamed(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("reading the file that src= names: %w", err)
}

// readValues replaces env and src in the secrets of a policy's file by the values.
func (p *Platform) readValues(policy map[string]any, line func(pointer string) int) error {
	secrets, _ := policy["secrets"].([]any)
	for i, one := range secrets {
		secret, ok := one.(map[string]any)
		if !ok {
			continue // what is wrong with it is found later
		}
		for _, key := range []string{"env", "src"} {
			text, given := secret[key]
			if !given {
				continue
			}
			at := fmt.Sprintf("/secrets/%d/%s", i, key)
			name, _ := text.(string)
			_, has := secret["value"]
			if name == "" || has {
				return fmt.Errorf("line %d, %s: a secret has one of value, env and src, which is a text", line(at), at)
			}
			from := source{env: name}
			if key == "src" {
				from = source{file: name}
			}
			value, err := p.readSecret(from)
			if err != nil {
				return fmt.Errorf("line %d, %s: %w", line(at), at, err)
			}
			delete(secret, key)
			secret["value"] = string(value)
		}
	}
	return nil
}
