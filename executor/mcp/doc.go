// Package mcp runs the MCP servers of an agent and offers their tools as those
// of one server. It knows neither actions nor HTTP.
//
// A server is a program that speaks the Model Context Protocol over its
// standard input and output. It starts on first use, with the user's rights and
// in a session of its own, and runs until the configuration no longer names it
// and no client uses it. Its child processes end with it. An answer that needs
// several servers starts them in parallel.
//
// # Trust
//
// A server is not trusted. The proxy drops lines that are not messages, because
// programs print greetings to standard output; a mebibyte of such lines ends
// the server. Answers are repaired member by member before the library decodes
// them, so that an odd tool or block of content loses no other. A message has at most 16 MiB and 200,000 values, which are
// counted before it is decoded. Notifications are not queued, and too many
// unanswered requests of a server end it. Each call returns within its time
// limit: with the result, or with the error and the end of the server's
// standard error, in which the values of its environment are masked. No output
// of a server is logged.
package mcp
