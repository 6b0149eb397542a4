package changes

// StoresHaveTimes is storesHaveTimes.
var StoresHaveTimes = storesHaveTimes

// ListXattrs is listXattrs.
var ListXattrs = listXattrs
