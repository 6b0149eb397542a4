package changes

// StoresHaveTimes is storesHaveTimes.
var StoresHaveTimes = storesHaveTimes
