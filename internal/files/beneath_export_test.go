package files

// OpenBeneathBy is OpenBeneath with or without openat2.
var OpenBeneathBy = openBeneath
