// Package browse shows pages: in a headless Chromium of the image, driven by
// small programs of calls, or, where there is none, by a plain fetch. It knows
// no actions.
//
// Chromium is started by the first step, with the user's rights and a profile
// of its own, and stopped when it has been idle. It is spoken to by the Chrome
// DevTools Protocol over a pair of pipes: there is no port that another process
// or a page could find.
//
// # What a page and a browser are trusted with
//
// Nothing. A step has a time limit, whatever the page does; of a message that is
// too long only the beginning is kept; texts are cut. A page that crashes or does
// not answer is closed, and a browser that does not is killed, with all that it
// started. Programs are parsed by a grammar that knows calls and literals, and
// are never evaluated.
package browse
