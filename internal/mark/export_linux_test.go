package mark

// Executing is for tests.
var Executing = executing
