package api

// IPythonAction runs a cell in the session's Python kernel.
type IPythonAction struct {
	// Code is the text of the cell, verbatim.
	Code string `json:"code"`
	Common
	// IncludeExtra adds the working directory and the interpreter to the
	// content. True when absent on the wire.
	IncludeExtra bool `json:"include_extra"`
	// KernelInitCode is carried and not used.
	KernelInitCode string `json:"kernel_init_code"`
	// Reference keeps carriage returns, and the colours that the reference keeps.
	Reference bool `json:"-"`
}

// IPythonObservation is the output and the result of a cell. An exception is part of
// the content; the legacy protocol calls every cell a success.
type IPythonObservation struct {
	Content string `json:"-"`
	// Code is the cell as it was sent.
	Code string `json:"code"`
	// ImageURLs are data URLs of PNG images; nil, which travels as null, when
	// there are no images.
	ImageURLs []string `json:"image_urls"`
	// Failure is the error code of the cell, "" without a failure: "command_failed" for
	// an exception, "timed_out". It is sent beside the extras, in which clients allow no
	// other members.
	Failure string `json:"-"`
	// Outcome is the outcome of the cell; "" is derived from Failure.
	Outcome Outcome `json:"-"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}
