// Package browse shows pages: in a headless Chromium of the image, driven by
// small programs of calls, or by a plain HTTP request if there is none. It
// knows no actions.
//
// The first step starts Chromium, with the user's rights and a profile of its
// own; it stops when it is idle. Both sides speak the Chrome DevTools Protocol
// over a pair of pipes: there is no port that a page or another process could
// find.
//
// # Trust
//
// Pages and the browser are not trusted. Each step has a time limit; of a
// message that is too long the pipe keeps the beginning; texts are cut. A page
// that crashes or does not answer is closed. A browser that does not answer is
// killed with all its processes. Programs have a grammar of calls and literals
// and are not evaluated.
package browse
