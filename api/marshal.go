package api

// An observation is the same in [encoding/json] as in [EncodeObservation]. The plain types have
// its extras alone.

type (
	plainRun          RunObservation
	plainExec         ExecObservation
	plainIPython      IPythonObservation
	plainRead         ReadObservation
	plainWrite        WriteObservation
	plainFile         FileObservation
	plainEdit         EditObservation
	plainError        ErrorObservation
	plainNull         NullObservation
	plainThink        ThinkObservation
	plainSuccess      SuccessObservation
	plainUserRejected UserRejectedObservation
	plainTaskTracking TaskTrackingObservation
	plainMCP          MCPObservation
	plainSearch       SearchObservation
	plainBrowse       BrowseObservation
	plainDownload     DownloadObservation
)

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
