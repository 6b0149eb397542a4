package api

import "fmt"

// DecodeObservation reads the answer of a server, ours or the reference's.
// Keys that it does not know are ignored, so that a newer server can be
// understood; absent ones have the defaults of the protocol. Half of a
// surrogate pair in a text becomes U+FFFD.
func DecodeObservation(data []byte) (Observation, error) {
	o, err := decodeObservation(data)
	if err != nil {
		return nil, fmt.Errorf("decoding observation: %w", err)
	}
	return o, nil
}

func decodeObservation(data []byte) (Observation, error) {
	p, err := newParser(data)
	if err != nil {
		return nil, err
	}
	if p.peek() != '{' {
		return nil, p.noObject("an object")
	}
	top := fields{of: "member", values: map[string]any{}}
	err = p.object(func(name string) (err error) {
		switch name {
		case "observation", "content", "extras", "diff":
			top.values[name], err = p.value()
			return err
		}
		return p.skip()
	})
	if err != nil {
		return nil, err
	}
	if err := p.end(); err != nil {
		return nil, err
	}
	return top.observation()
}

// observation makes a value of the members of an envelope.
func (f *fields) observation() (Observation, error) {
	kind := f.needText("observation")
	content := f.text("content", "")
	extras := &fields{of: fmt.Sprintf("observation %s: extra", excerpt(kind)), values: f.object("extras")}
	diff := ""
	if kind == "write" { // elsewhere it is no word of the protocol
		diff = f.text("diff", "")
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	o, err := decodeExtras(kind, content, diff, extras)
	if err != nil {
		return nil, err
	}
	return o, extras.check()
}

func decodeExtras(kind, content, diff string, f *fields) (Observation, error) {
	switch kind {
	case "run":
		return decodeRunObservation(content, f)
	case "run_ipython":
		return decodeIPythonObservation(content, f), nil
	case "read":
		return decodeReadObservation(content, f), nil
	case "write":
		return WriteObservation{Path: f.needText("path"), Content: content, Diff: diff}, nil
	case "edit":
		return decodeEditObservation(content, f), nil
	case "search":
		return decodeSearchObservation(content, f), nil
	case "browse":
		return decodeBrowseObservation(content, f), nil
	case "download":
		return decodeDownloadObservation(content, f), nil
	case "mcp":
		return decodeMCPObservation(content, f), nil
	case "task_tracking":
		return decodeTaskTrackingObservation(content, f)
	case "error":
		return ErrorObservation{Content: content, ErrorID: f.text("error_id", "")}, nil
	case "null":
		return NullObservation{Content: content}, nil
	case "think":
		return ThinkObservation{Content: content}, nil
	case "success":
		return SuccessObservation{Content: content}, nil
	case "user_rejected":
		return UserRejectedObservation{Content: content}, nil
	}
	return nil, fmt.Errorf("observation %s is unknown", excerpt(kind))
}
