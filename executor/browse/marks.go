package browse

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"slices"
)

// digits is a font of five by seven pixels; each row is five bits.
var digits = [10][7]byte{
	{14, 17, 19, 21, 25, 17, 14},
	{4, 12, 4, 4, 4, 4, 14},
	{14, 17, 1, 2, 4, 8, 31},
	{31, 2, 4, 2, 1, 17, 14},
	{2, 6, 10, 18, 31, 2, 2},
	{31, 16, 30, 1, 1, 17, 14},
	{6, 8, 16, 30, 17, 17, 14},
	{31, 1, 2, 4, 8, 8, 8},
	{14, 17, 17, 14, 17, 17, 14},
	{14, 17, 17, 15, 1, 2, 12},
}

var palette = []color.RGBA{
	{200, 0, 0, 255}, {0, 110, 0, 255}, {0, 0, 200, 255}, {150, 80, 0, 255}, {120, 0, 140, 255}, {0, 110, 130, 255},
}

// mark draws boxes with their bids, which are numbers, on a PNG image. It
// returns nil if shot is not such an image.
func mark(shot []byte, boxes map[string]box) []byte {
	config, err := png.DecodeConfig(bytes.NewReader(shot))
	if err != nil || config.Width > 2*width || config.Height > 2*height {
		return nil
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil
	}
	canvas := image.NewRGBA(picture.Bounds())
	draw.Draw(canvas, canvas.Bounds(), picture, image.Point{}, draw.Src)
	for i, bid := range slices.Sorted(maps.Keys(boxes)) {
		b, ink := boxes[bid], palette[i%len(palette)]
		area := image.Rect(int(b.x), int(b.y), int(b.x+b.w), int(b.y+b.h)).Intersect(canvas.Bounds())
		frame(canvas, area, ink)
		label(canvas, area.Min, bid, ink)
	}
	var out bytes.Buffer
	if png.Encode(&out, canvas) != nil {
		return nil
	}
	return out.Bytes()
}

// frame draws the border of a rectangle, two pixels wide.
func frame(canvas draw.Image, r image.Rectangle, ink color.Color) {
	const line = 2
	for _, side := range []image.Rectangle{
		{r.Min, image.Pt(r.Max.X, r.Min.Y+line)},
		{image.Pt(r.Min.X, r.Max.Y-line), r.Max},
		{r.Min, image.Pt(r.Min.X+line, r.Max.Y)},
		{image.Pt(r.Max.X-line, r.Min.Y), r.Max},
	} {
		draw.Draw(canvas, side.Intersect(r), image.NewUniform(ink), image.Point{}, draw.Src)
	}
}

// label writes a number in white on a rectangle, whose upper left corner is at
// a point.
func label(canvas draw.Image, at image.Point, number string, ink color.Color) {
	field := image.Rect(at.X, at.Y, at.X+6*len(number)+3, at.Y+11)
	draw.Draw(canvas, field, image.NewUniform(ink), image.Point{}, draw.Src)
	for i, digit := range number {
		if digit < '0' || digit > '9' {
			continue
		}
		for y, row := range digits[digit-'0'] {
			for x := range 5 {
				if row&(16>>x) != 0 {
					canvas.Set(at.X+2+6*i+x, at.Y+2+y, color.White)
				}
			}
		}
	}
}
