package api

// IPythonAction runs a cell in the session's Python kernel.
type IPythonAction struct {
	Common
	// Code is the text of the cell, verbatim.
	Code string
	// IncludeExtra adds the working directory and the interpreter to the
	// content. True when absent on the wire.
	IncludeExtra bool
	// KernelInitCode is carried and not used.
	KernelInitCode string
}

// Kind returns "run_ipython".
func (IPythonAction) Kind() string { return "run_ipython" }
func (IPythonAction) action()      {}

func decodeIPython(f *fields) IPythonAction {
	a := IPythonAction{
		Common:         decodeCommon(f),
		Code:           f.needText("code"),
		IncludeExtra:   f.flag("include_extra", true),
		KernelInitCode: f.text("kernel_init_code", ""),
	}
	f.take("confirmation_state") // the client's own affair
	return a
}

func (a IPythonAction) encodeArgs(w *writer) {
	w.text("code", a.Code)
	a.encodeCommon(w)
	w.flag("include_extra", a.IncludeExtra)
	w.text("kernel_init_code", a.KernelInitCode)
}

// IPythonObservation is what a cell printed and returned. An exception is part
// of the content; the wire calls every cell a success.
type IPythonObservation struct {
	Content string
	// Code is the cell as it was sent.
	Code string
	// ImageURLs are data URLs of PNG images; nil, which travels as null, when
	// there are none.
	ImageURLs []string
	// Failure is the machine word for how the cell failed, "" where it did not:
	// "command_failed" for an exception, "timed_out". It is not encoded: clients
	// keep the extras closed.
	Failure string
}

// Kind returns "run_ipython".
func (IPythonObservation) Kind() string { return "run_ipython" }
func (IPythonObservation) observation() {}

func (o IPythonObservation) encode(w *writer) {
	w.head("Code executed in IPython cell.", o.Kind(), o.Content)
	w.text("code", o.Code)
	w.texts("image_urls", o.ImageURLs)
	w.close()
	w.flag("success", true)
	w.close()
}

func decodeIPythonObservation(content string, f *fields) Observation {
	return IPythonObservation{Content: content, Code: f.needText("code"), ImageURLs: f.texts("image_urls")}
}
