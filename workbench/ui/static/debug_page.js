// A recorded history on a page without Python: each place has its data in the script element that follows.
for (const place of document.querySelectorAll(".debug-view")) {
  const data = JSON.parse(place.nextElementSibling.textContent);
  data.state = data.history[0];
  debugView.render({ model: { get: (name) => data[name], on: () => {}, off: () => {} }, el: place });
}
