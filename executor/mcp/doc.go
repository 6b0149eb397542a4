// Package mcp runs the MCP servers of an agent and offers their tools as those
// of one server. It knows no actions and no HTTP.
//
// A server is a program that speaks the Model Context Protocol over its standard
// input and output. It is started on first use, with the user's rights, in a
// session of its own, and kept until it is configured no more and nobody is
// connected to it. What it started ends with it. All that are needed for an answer start in parallel.
//
// # What a server is trusted with
//
// Nothing. A line that is no message is dropped, as programs print greetings
// where messages belong; a mebibyte of such lines ends the server. A message has
// at most 16 MiB and 200,000 values, of which nothing is decoded beforehand.
// Notifications are not queued, and requests that it makes of us are few or end
// it. Whatever it does, its calls are answered within their time: with its
// result, or with what happened to it and the end of what it wrote to standard
// error, in which the values of its environment are masked. Nothing that it says
// is logged.
package mcp
