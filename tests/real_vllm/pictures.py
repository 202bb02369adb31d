"""Generated requests with images, for every route that takes them."""

import base64
import io

from PIL import Image

from bodies import Author, Case

FAMILIES = ("qwen2_vl", "llava", "mistral3")
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SIZES = ((640, 480), (28, 28), (1, 1), (57, 29), (1000, 30), (30, 1000), (2000, 1500), (633, 632), (56, 5600), (300, 301))


class Painter(Author):
    def image(self):
        """Format and bytes of a picture of noise-free grey; half of the JPEGs are turned by a note in them."""
        kind = self.random.choice(FORMATS)
        size = self.random.choice(SIZES) if self.maybe(0.5) else tuple(self.random.sample(range(20, 1400), 2))
        options = {}
        if kind == "JPEG" and self.maybe(0.5):
            options["exif"] = Image.Exif()
            options["exif"][0x0112] = self.random.choice([3, 6, 8])
        out = io.BytesIO()
        Image.new("P" if kind == "GIF" else "RGB", size).save(out, kind, **options)
        return f"image/{kind.lower()}", base64.b64encode(out.getvalue()).decode()

    def link(self):
        kind, data = self.image()
        return f"data:{kind};base64,{data}"

    def seen(self, image):
        """Texts and one to three images in any order; `image` writes one part."""
        parts = [image() for _ in range(self.random.randint(1, 3))]
        parts += [{"type": "text", "text": self.text(10)} for _ in range(self.random.randint(0, 2))]
        self.random.shuffle(parts)
        return parts

    def chat_image(self):
        return {"type": "image_url", "image_url": {"url": self.link()}}

    def response_image(self):
        return {"type": "input_image", "image_url": self.link(), "detail": "auto"}

    def message_image(self):
        kind, data = self.image()
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}

    def input_texts(self, parts):
        return [{**part, "type": "input_text"} if part["type"] == "text" else part for part in parts]


def seeing(family):
    """All requests to a server of one family."""
    painter = Painter(23)
    for at in range(30):
        turns = [{"role": "user", "content": painter.seen(painter.chat_image)}]
        if at % 3 == 2:
            turns += [{"role": "assistant", "content": painter.text(5)}, {"role": "user", "content": painter.seen(painter.chat_image)}]
        yield Case("chat", f"images {at}", {"messages": turns}, stream=at % 2 == 1)
    for at in range(10):
        content = painter.input_texts(painter.seen(painter.response_image))
        yield Case("responses", f"images {at}", {"input": [{"role": "user", "content": content}]}, stream=at % 2 == 1)
    for at in range(10):
        content = painter.seen(painter.message_image)
        yield Case("messages", f"images {at}", {"messages": [{"role": "user", "content": content}]}, stream=at % 2 == 1)
    if family != "qwen2_vl":
        return
    narrowed = {"mm_processor_kwargs": {"max_pixels": 50_000}}
    for at in range(4):
        turns = [{"role": "user", "content": painter.seen(painter.chat_image)}]
        yield Case("chat", f"narrowed by the request {at}", {"messages": turns, **narrowed}, estimated=True)
