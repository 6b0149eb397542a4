package api

// An observation is the same in [encoding/json] as in [EncodeObservation].

// MarshalJSON is [EncodeObservation].
func (o RunObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o ExecObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o IPythonObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o ReadObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o WriteObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o FileObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o EditObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o ErrorObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o NullObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o ThinkObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o SuccessObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o UserRejectedObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o TaskTrackingObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o MCPObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o SearchObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o BrowseObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }

// MarshalJSON is [EncodeObservation].
func (o DownloadObservation) MarshalJSON() ([]byte, error) { return EncodeObservation(o) }
